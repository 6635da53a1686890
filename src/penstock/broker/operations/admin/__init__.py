"""Operations on the broker itself: its node, users, vhosts, policies, definitions, audit."""
