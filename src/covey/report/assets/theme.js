/* Colours of the plots in light and dark mode. */

const THEMES = {
  light: {
    dark: false, page: "#ffffff", ink: "#1c1e21", muted: "#5b626b", line: "#d9dde2", free: "#eceff2",
    cells: ["#fafafa", "#f1f4f7"], border: "#b9c0c8", alarm: "#a3190f", accent: "#0b57b0", second: "#c24e00",
    stack: ["#08519c", "#4a93c8", "#8a8f98"],
  },
  dark: {
    dark: true, page: "#15171a", ink: "#e9ebee", muted: "#a4acb6", line: "#3a3f46", free: "#272b30",
    cells: ["#191c20", "#1e2227"], border: "#4b525b", alarm: "#ff9d92", accent: "#8ab8ff", second: "#ff9a57",
    stack: ["#8ab8ff", "#3f7fc4", "#8b929b"],
  },
};

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

const preference = () => matchMedia("(prefers-color-scheme: dark)");

/** The theme preferred by the browser, or the light or dark one if `dark` is given. */
export function theme(dark = preference().matches) {
  return dark ? THEMES.dark : THEMES.light;
}

/** Call back when the preferred colour scheme changes. */
export function onThemeChange(callback) {
  preference().addEventListener("change", callback);
}

/** Colour of every group in this theme. */
export function groupColours(site, colours) {
  return colours.dark ? site.colours.dark : site.colours.light;
}

/** Black or white, whichever has more contrast on a "#rrggbb" colour. */
export function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return (luminance + 0.05) ** 2 >= 0.05 * 1.05 ? "#000000" : "#ffffff";
}
