from fsf_statistics.comparing import Comparison as Comparison
from fsf_statistics.comparing import compare as compare
from fsf_statistics.estimating import estimate as estimate
from fsf_tools.sweeping import sweep as sweep
from fsframework.api.data import attributes as attributes
from fsframework.api.data import dataset as dataset
from fsframework.api.data import draw as draw
from fsframework.api.data import pool as pool
from fsframework.api.experiments import Description as Description
from fsframework.api.experiments import describe as describe
from fsframework.api.models import Model as Model
from fsframework.api.models import evaluate as evaluate
from fsframework.api.models import model as model
from fsframework.api.running import Run as Run
from fsframework.api.running import Runs as Runs
from fsframework.api.running import load_run as load_run
from fsframework.api.running import run as run
from fsframework.api.running import runs as runs
from fsframework.values import ArmOutcomes as ArmOutcomes
from fsframework.values import Arms as Arms
from fsframework.values import AttributeTable as AttributeTable
from fsframework.values import Estimate as Estimate
from fsframework.values import Estimates as Estimates
from fsframework.values import ImagePool as ImagePool
from fsframework.values import Outcomes as Outcomes
from fsframework.values import TaskSet as TaskSet

__version__: str
