"""What people do with messages: look, search, move, edit, redrive."""
