"""PromQL, put together: selectors that keep to the dashboard's variables, and what to make of several workers.

Every selector asks for `$job` and `$instance`. What adds up is summed over workers. What does not (AUC, ...) is their
mean, weighted with the impressions it rests on; of one worker that is its own number. Workers have different users, so
the error of that mean is the root of the weighted squares.
"""

from __future__ import annotations

PREFIX = "streameval_"
SCOPE = 'job=~"$job", instance=~"$instance"'
MODEL = SCOPE + ', model_name="$model"'
VERSIONS = MODEL + ', model_version=~"$version"'
WINDOW = VERSIONS + ', window="$window"'
SLICES = WINDOW + ', slice="$slice"'
RANGE = "[$__rate_interval]"


def of(family: str, scope: str = SCOPE, *more: str) -> str:
    """A selector: `of("auc", WINDOW, 'source="logged"')`."""
    return f"{PREFIX}{family}{{{', '.join((scope, *more))}}}"


def rate(family: str, scope: str = SCOPE, *more: str) -> str:
    """A counter's growth a second."""
    return f"rate({of(family, scope, *more)}{RANGE})"


def mean(
    family: str, scope: str = WINDOW, *more: str, by: str = "model_version", weight: str = "window_impressions"
) -> str:
    """A window gauge over all workers; `weight` is the family that says how much each rests on."""
    value, n = of(family, scope, *more), of(weight, scope, *more)
    return f"sum by ({by}) ({value} * {n}) / sum by ({by}) ({n} and {value})"


def error(
    family: str, scope: str = WINDOW, *more: str, by: str = "model_version", weight: str = "window_impressions"
) -> str:
    """One standard error of `mean`."""
    value, n = of(f"{family}_stderr", scope, *more), of(weight, scope, *more)
    return f"sqrt(sum by ({by}) (({value} * {n}) ^ 2)) / sum by ({by}) ({n} and {value})"


def newest(value: str) -> str:
    """Of the versions in `value`, the one that went live last among those with labels; any one if none went live."""
    deployed = of("deploy_timestamp_seconds", VERSIONS, 'kind!="shadow"')
    live = f"max by (model_version) ({deployed}) and on (model_version) {of('window_impressions', WINDOW)}"
    known = f"0 * max by (model_version) ({of('newest_label_timestamp_seconds', VERSIONS)})"
    return f"({value}) and on (model_version) topk(1, ({live}) or ({known}))"


def verdict(by: str, scope: str) -> str:
    """2 worse, 1 undecided, 0 not worse: the gravest of each group."""

    def holds(name: str) -> str:
        return of("comparison_verdict", scope, f'verdict="{name}"')

    return f"max by ({by}) (2 * {holds('worse')} or {holds('undecided')} or 0 * {holds('not_worse')})"


def labels_behind() -> str:
    """Seconds by which the newest final label is older than the attribution window explains; the slowest worker."""
    complete = f"max by (job, instance) ({of('label_complete_timestamp_seconds')})"
    return f"max(time() - {complete} - on (job, instance) {of('attribution_window_seconds')})"
