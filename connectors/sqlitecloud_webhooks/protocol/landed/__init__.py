"""What landed posts hold: announced columns and changes, as receiver and decoder read them."""
