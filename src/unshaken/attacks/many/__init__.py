"""The batched engine: examples of a cohort are searched together, as tensor work on the victim's device."""
