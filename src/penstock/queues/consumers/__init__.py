"""Who gets messages: consumers, whose turn it is, and what each has seen."""
