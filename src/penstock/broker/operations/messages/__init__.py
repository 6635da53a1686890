"""What people do with the messages of a queue, by hand: look, search, move, edit, redrive."""
