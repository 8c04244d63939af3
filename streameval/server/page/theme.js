// Before the first paint: the theme that was chosen here, or that of the system.
const chosen = localStorage.getItem("streameval-theme");
if (chosen) document.documentElement.dataset.theme = chosen;
