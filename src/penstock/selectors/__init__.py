"""Selectors: the conditions with which a consumer chooses messages, over their headers and properties. Pure."""
