// What the page says about each metric: name, meaning, digits, and which way is better (1 up, -1 down, 0 neither).
// A metric that is not listed is shown under its own name; a new one needs a row here only to be shown well.

export const METRICS = {
  auc: { name: "AUC", about: "area under the ROC curve, over all samples", digits: 4, better: 1 },
  gauc: { name: "GAUC", about: "mean of per-user AUC, weighted by impressions", digits: 4, better: 1 },
  gauc_request: { name: "GAUC by request", about: "mean of per-request AUC", digits: 4, better: 1 },
  log_loss: { name: "Log loss", about: "mean log loss, nats", digits: 4, better: -1 },
  rig: { name: "RIG", about: "relative information gain: 1 less normalised entropy; below 0 is worse than the base rate", digits: 4, better: 1 },
  calibration: { name: "Calibration", about: "predicted clicks over clicks; 1 is calibrated", digits: 3, better: 0, ideal: 1 },
  prediction_error: { name: "Prediction error", about: "calibration less 1", digits: 3, better: 0, ideal: 0 },
  ctr: { name: "CTR", about: "clicks over impressions", digits: 4, better: 0 },
  mean_pclick: { name: "Mean pClick", about: "mean predicted probability of a click", digits: 4, better: 0 },
  ece: { name: "ECE", about: "expected calibration error over pClick buckets", digits: 4, better: -1 },
  mse: { name: "MSE", about: "mean squared error", digits: 5, better: -1 },
  nmse: { name: "NMSE", about: "mean squared error over that of the base rate", digits: 4, better: -1 },
  mae: { name: "MAE", about: "mean absolute error", digits: 4, better: -1 },
};

export const metric = (name) => METRICS[name] ?? { name: name.replaceAll("_", " "), about: "", digits: 4, better: 0 };

export const REASONS = {
  no_impressions: "no impressions",
  no_clicks: "no clicks",
  no_non_clicks: "only clicks",
  no_eligible_user: "no user with both labels",
  no_eligible_group: "no group with both labels",
  not_kept_for_slices: "not kept for slices",
  not_estimated: "not estimated",
  learning: "the model has only begun to learn: it is not judged yet",
  too_few_clicks: "too few clicks yet",
  too_few_impressions: "too few impressions yet",
  too_few_blocks: "too few users yet",
  no_longer_kept: "what it rests on is no longer kept (compare.keep)",
  not_compared: "not compared: only the version that serves has a calibration of its own",
};

export const reason = (name) => (name ? (REASONS[name] ?? name.replaceAll("_", " ")) : "");
