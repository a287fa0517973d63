"""The second reader of landed frames, and the subscription that verify compares silver with."""
