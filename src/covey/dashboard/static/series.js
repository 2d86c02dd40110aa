/* Rows of a run or training as columns, in the format of the report plots. */

const BY_NUMBER = /^(task_users|task_served|task_loss|task_accuracy|group_loss|group_accuracy|group_majority|group_central|group_personal_accuracy)_(\d+)$/;

/** Columns by name; columns by task or group become one list of columns. Strings such as "infinite" become gaps. */
export function seriesOf(rows) {
  const series = {};
  if (!rows.length) return series;
  for (const name of Object.keys(rows[rows.length - 1])) {
    const values = rows.map((row) => (typeof row[name] === "number" ? row[name] : null));
    const found = BY_NUMBER.exec(name);
    if (found) {
      series[found[1]] ??= [];
      series[found[1]][Number(found[2])] = values;
    } else {
      series[name] = values;
    }
  }
  return series;
}

/** Several curves { x, y } on a common x; missing values are gaps. */
export function together(curves) {
  const places = [...new Set(curves.flatMap((curve) => curve.x))].sort((first, second) => first - second);
  const at = new Map(places.map((x, index) => [x, index]));
  const values = curves.map((curve) => {
    const line = new Array(places.length).fill(null);
    curve.x.forEach((x, index) => {
      line[at.get(x)] = curve.y[index];
    });
    return line;
  });
  return { x: places, values };
}
