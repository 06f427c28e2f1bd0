"""The targets of a body and its objective: mixup, soft labels, and labels from a teacher."""
