"""The face without async. Everything but `waiting` and what says so is generated from `client/aio`."""
