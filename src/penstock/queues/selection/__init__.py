"""Which message a consumer gets, when that is not simply the next one: selectors, groups, orders."""
