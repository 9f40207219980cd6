"""The methods once more, as naive loops from their formulas, to compare numbers with.

Nothing here imports fedadb. Weights are dictionaries of double-precision tensors, losses are
sums over rows and classes, and a method is a function that returns the gradient of each weight.
"""
