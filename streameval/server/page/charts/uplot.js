// uPlot, loaded when the first chart needs it.

let loading = null;

export function load() {
  loading ??= new Promise((done, failed) => {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = "page/vendor/uplot/uPlot.min.css";
    const script = document.createElement("script");
    script.src = "page/vendor/uplot/uPlot.iife.min.js";
    script.onload = () => done(window.uPlot);
    script.onerror = () => {
      loading = null;
      failed(new Error("uPlot did not load"));
    };
    document.head.append(style, script);
  });
  return loading;
}
