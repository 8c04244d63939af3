"""The sections of `[[models]]`, one class a kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from streameval.settings.section import Int, Kinds, Real, Section


class ModelSettings(Section):
    """What every kind of model has; a kind's class adds its `kind` and its parameters."""

    name: str = Field(min_length=1, description="`model` of its results; must be unique")
    max_failures: Int = Field(
        100,
        ge=1,
        description="a model with this many failures on a partition's events is suspended there; every 100 events without a failure take one off",
    )
    revision: Int = Field(
        0,
        ge=0,
        description="raise it after fixing or changing the model's code: on restart the model then starts from scratch, suspended or not, and everything else is restored",
    )


class FtrlModel(ModelSettings):
    """Hashed FTRL-Proximal logistic regression (McMahan et al. 2013)."""

    kind: Literal["ftrl"] = Field("ftrl", description="kind of model; required")
    alpha: Real = Field(0.05, gt=0, description="learning rate")
    beta: Real = Field(1.0, ge=0, description="smoothing of the learning rate")
    l1: Real = Field(0.0, ge=0, description="L1 penalty")
    l2: Real = Field(1.0, ge=0, description="L2 penalty")
    bits: Int = Field(22, ge=4, le=28, description="2^`bits` hashed weights of 16 bytes each, per partition")


class RiverModel(ModelSettings):
    """Any River classifier, by import path and parameters."""

    kind: Literal["river"] = Field("river", description="kind of model; required")
    factory: str = Field(
        description='a callable that returns a River classifier: `"package.module:callable"` or `"river.linear_model.LogisticRegression"`'
    )
    parameters: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the factory")


MODELS = Kinds(FtrlModel, RiverModel)
Model = Annotated[ModelSettings, MODELS]
