/* Start of a report: reads the data of the page and brings it to life. */

import { showRun } from "./run_page.js";
import { showTraining } from "./training_page.js";

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
// Still pictures give way to moving ones; on failure they come back.
root.classList.add("moving-page");
try {
  if (data.kind === "training") showTraining(data);
  else showRun(data);
  // After the first drawing, which waits for the same frame: what tests and measurements look for.
  requestAnimationFrame(() => performance.mark("covey:drawn"));
} catch (error) {
  root.classList.remove("moving-page");
  throw error;
}
