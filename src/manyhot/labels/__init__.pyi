"""Public names of ``manyhot.labels`` and where they live."""

from manyhot.labels.describe import LabelPair as LabelPair
from manyhot.labels.describe import LabelStatistics as LabelStatistics
from manyhot.labels.describe import Leaks as Leaks
from manyhot.labels.describe import describe_labels as describe_labels
from manyhot.labels.describe import find_leaks as find_leaks
from manyhot.labels.encode import decode_label_sets as decode_label_sets
from manyhot.labels.encode import encode_label_sets as encode_label_sets
from manyhot.labels.encode import label_names as label_names
from manyhot.labels.soften import cutmix as cutmix
from manyhot.labels.soften import flip_labels as flip_labels
from manyhot.labels.soften import mix_labels as mix_labels
from manyhot.labels.soften import mixup as mixup
from manyhot.labels.soften import smooth_labels as smooth_labels
from manyhot.labels.soften import soft_labels_from as soft_labels_from
from manyhot.labels.spans import SpanLabels as SpanLabels
from manyhot.labels.sparse import SparseLabels as SparseLabels
from manyhot.labels.split import stratified_folds as stratified_folds
from manyhot.labels.split import stratified_split as stratified_split
