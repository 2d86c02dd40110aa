/* Entry point of a report: parses the embedded data and initialises the page. */

import { showRun } from "./run_page.js";
import { showTraining } from "./training_page.js";

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
// Interactive figures replace the static images; on failure the images are restored.
root.classList.add("moving-page");
try {
  if (data.kind === "training") showTraining(data);
  else showRun(data);
  // Set after the first paint, which waits for the same animation frame; tests and benchmarks wait for it.
  requestAnimationFrame(() => performance.mark("covey:drawn"));
} catch (error) {
  root.classList.remove("moving-page");
  throw error;
}
