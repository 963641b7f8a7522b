"""Collection: problems come from sources, a plan chooses candidates, worker processes time them."""
