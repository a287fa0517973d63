"""The second reader of landed frames, and the replay of the stream that verify compares silver with."""
