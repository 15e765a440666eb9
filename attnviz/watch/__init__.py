"""Attention figures while a model trains.

    watch = attnviz.Watch(images=["cat.jpg"], figures=("heads", "rollout"), every=500)
    for step, batch in enumerate(batches):
        ...
        watch(model, step)

``attnviz.watch.lightning`` and ``attnviz.watch.huggingface`` adapt it to the trainers of those
libraries, and import them.
"""

from attnviz.watch.callback import Watch

__all__ = ["Watch"]
