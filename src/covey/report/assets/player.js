/* A slider with a play button that sets the round or epoch of the whole page. */

/**
 * Build the control into a host element.
 *
 * values: the options, in order; noun: their name ("round"); onChange(index, value) is called
 * on every change. Returns { choose(index), chooseValue(value), index() }.
 */
export function makePlayer(host, { values, noun, total, onChange, still = false }) {
  const slider = document.createElement("input");
  const label = document.createElement("label");
  const text = document.createElement("output");
  const last = values.length - 1;
  slider.type = "range";
  Object.assign(slider, { min: 0, max: last, step: 1, value: last, id: `choose-${noun}` });
  label.htmlFor = slider.id;
  label.textContent = capital(noun);
  text.htmlFor = slider.id;
  const button = document.createElement("button");
  button.type = "button";
  let timer = null;
  let pending = false;

  const show = () => {
    pending = false;
    const index = Number(slider.value);
    text.textContent = `${values[index].toLocaleString("en")} of ${total.toLocaleString("en")}`;
    slider.setAttribute("aria-valuetext", `${noun} ${text.textContent}`);
    onChange(index, values[index]);
  };
  // Slider events are coalesced into one redraw per animation frame.
  const later = () => {
    if (!pending) requestAnimationFrame(show);
    pending = true;
  };
  const pause = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
  };
  const choose = (index) => {
    slider.value = String(index);
    later();
  };
  const play = () => {
    if (Number(slider.value) === last) choose(0);
    button.textContent = "Pause";
    timer = setInterval(() => {
      choose(Math.min(last, Number(slider.value) + 1));
      if (Number(slider.value) === last) pause();
    }, values.length > 60 ? 250 : 600);
  };
  button.addEventListener("click", () => (timer === null ? play() : pause()));
  slider.addEventListener("input", () => {
    pause();
    later();
  });
  pause();
  host.append(label, slider, text);
  if (!still && values.length > 1) host.append(button);
  if (values.length < 2) slider.disabled = true;
  return {
    choose,
    chooseValue: (value) => choose(nearest(values, value)),
    index: () => Number(slider.value),
  };
}

function capital(noun) {
  return noun.charAt(0).toUpperCase() + noun.slice(1);
}

/** Index of the value nearest to a number. */
function nearest(values, wanted) {
  return values.reduce((best, value, index) => {
    return Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? index : best;
  }, 0);
}
