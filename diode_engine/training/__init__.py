"""Training: which problems a model is fitted to, which it is judged on, and the fit as a run."""
