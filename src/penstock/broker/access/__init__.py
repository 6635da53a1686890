"""Who may do what: users, passwords, patterns, permissions and limits."""
