"""The turn of the event loop: who works, who waits, when the disk is written."""
