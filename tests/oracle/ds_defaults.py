#!/usr/bin/env python3
"""Dumps the defaults of DeepSpeed's configuration as {"path": default}, for tests/cfg.

    python tests/oracle/ds_defaults.py > tests/cfg/deepspeed_defaults.json

Needs the package deepspeed. Names are those that a ds_config.json uses (an alias if there is one); fields
that only code can set are omitted.
"""
import inspect
import json
import sys

import deepspeed
from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.monitor.config import CometConfig, CSVConfig, TensorBoardConfig, WandbConfig
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.profiling.config import DeepSpeedFlopsProfilerConfig
from deepspeed.runtime import constants as top
from deepspeed.runtime import lr_schedules
from deepspeed.runtime.activation_checkpointing.config import ACT_CHKPT_DEFAULT
from deepspeed.runtime.model_checkpointing import constants as checkpoint
from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
from deepspeed.runtime.swap_tensor.aio_config import AIO_DEFAULT_DICT
from deepspeed.runtime.tensor_parallel.config import TPConfig, TPTrainingConfig
from deepspeed.runtime.zenflow.zenflow_config import ZenFlowConfig
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
from deepspeed.runtime.zero.offload_config import (DeepSpeedZeroOffloadOptimizerConfig,
                                                   DeepSpeedZeroOffloadParamConfig)

out = {}
NOT_IN_FILES = {"mpu", "tp_group", "injection_policy_tuple", "steps_per_epoch"}


def plain(value):
    try:
        json.dumps(value)
        return True
    except TypeError:
        return False


def model(prefix, cls):
    for name, field in cls.model_fields.items():
        if name in NOT_IN_FILES or field.default_factory is not None:
            continue
        value = field.default
        value = int(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if plain(value) and not isinstance(value, dict):
            out[prefix + (field.alias or name)] = value


def signature(prefix, function, skip):
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in skip and parameter.default is not inspect.Parameter.empty:
            out[prefix + name] = parameter.default


def plain_object(prefix, config):
    for name, value in vars(config).items():
        if plain(value):
            out[prefix + name] = value


zero = "zero_optimization."
model(zero, DeepSpeedZeroConfig)
model(zero + "offload_param.", DeepSpeedZeroOffloadParamConfig)
model(zero + "offload_optimizer.", DeepSpeedZeroOffloadOptimizerConfig)
model(zero + "zenflow.", ZenFlowConfig)
model("fp16.", DeepSpeedFP16Config)
model("bf16.", DeepSpeedBF16Config)
model("tensorboard.", TensorBoardConfig)
model("csv_monitor.", CSVConfig)
model("wandb.", WandbConfig)
model("comet.", CometConfig)
model("comms_logger.", CommsLoggerConfig)
model("tensor_parallel.", TPTrainingConfig)
model("tensor_parallel.tensor_parallel.", TPConfig)
plain_object("flops_profiler.", DeepSpeedFlopsProfilerConfig({}))
out.update({"aio." + key: value for key, value in AIO_DEFAULT_DICT.items()})
out.update({"activation_checkpointing." + key: value for key, value in ACT_CHKPT_DEFAULT.items()})
out["checkpoint.tag_validation"] = checkpoint.CHECKPOINT_TAG_VALIDATION_DEFAULT
out["checkpoint.checkpoint_serialization"] = checkpoint.CHECKPOINT_SERIALIZATION_DEFAULT
for name in ("TYPE", "IO_BUFFER_SIZE", "IO_BUFFER_DOUBLE", "IO_STATISTICS", "DATA_PARALLEL",
             "WRITER_DECOUPLED", "IO_MULTIPLIER"):
    name = "WRITER_TYPE" if name == "TYPE" else name
    key = getattr(checkpoint, "CHECKPOINT_" + name)
    out["checkpoint.writer." + key] = getattr(checkpoint, f"CHECKPOINT_{name}_DEFAULT")
for name in ("TRAIN_BATCH_SIZE", "TRAIN_MICRO_BATCH_SIZE_PER_GPU", "GRADIENT_ACCUMULATION_STEPS",
             "MANAGED_GRADIENT_ACCUMULATION", "STEPS_PER_PRINT", "GRADIENT_CLIPPING",
             "COMMUNICATION_DATA_TYPE", "SEQ_PARALLEL_COMMUNICATION_DATA_TYPE",
             "PRESCALE_GRADIENTS", "GRADIENT_PREDIVIDE_FACTOR", "GRADIENT_ALLREDUCE_OP",
             "DISABLE_ALLGATHER", "DUMP_STATE", "VOCABULARY_SIZE", "WALL_CLOCK_BREAKDOWN",
             "MEMORY_BREAKDOWN", "DATALOADER_DROP_LAST", "ZERO_ALLOW_UNTESTED_OPTIMIZER",
             "ZERO_FORCE_DS_CPU_OPTIMIZER", "LOG_LEVEL"):
    out[getattr(top, name)] = getattr(top, name + "_DEFAULT")
params = "scheduler.params."
skip = {"self", "optimizer", "last_batch_iteration"}
signature(params, lr_schedules.WarmupCosineLR.__init__, skip)
signature(params, lr_schedules.WarmupLR.__init__, skip)
signature(params, lr_schedules.OneCycle.__init__, skip)
signature(params, lr_schedules.LRRangeTest.__init__, skip)
signature("optimizer.params.", DeepSpeedCPUAdam.__init__,
          {"self", "model_params", "adamw_mode"})

json.dump({"_deepspeed": deepspeed.__version__, **out}, sys.stdout, indent=1, default=list)
print()
