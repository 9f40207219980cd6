"""What a trained model kept, how flat it sits, and what its anchors tell."""
