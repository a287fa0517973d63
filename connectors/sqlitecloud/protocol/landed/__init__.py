"""What landed frames hold: notifications, table descriptions and values, as receiver and decoder read them."""
