"""The journal as its readers see it: positions, segments, names, cursors; from a folder or over HTTP."""
