"""How long the journal stays, and who still reads it."""
