"""Topic 08: meshes, training on them, recomputing, plans on paper; long sequences and experts."""

from autograder.topics.three_d_parallelism.checkpointing import checkpointed
from autograder.topics.three_d_parallelism.cost_model import best_plan, estimate_step
from autograder.topics.three_d_parallelism.experts import dispatch_to_experts
from autograder.topics.three_d_parallelism.meshes import build_mesh
from autograder.topics.three_d_parallelism.ring_attention import ring_attention
from autograder.topics.three_d_parallelism.training import train_step
