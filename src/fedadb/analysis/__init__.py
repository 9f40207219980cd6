"""Looking into finished runs: what a model kept, how flat it sits, what anchors are."""

NAMES = ("heatmap", "forgetting", "hessian", "landscape", "tsne", "pca", "psnr", "membership")
