/* Asking the server. Errors are its own sentences. */

/** What a GET gives; `query` holds values or lists of values by name. */
export async function get(path, query = {}) {
  return answer(await send(`/api/${path}${queryOf(query)}`));
}

/** What a POST of JSON gives. */
export async function post(path, body, signal = undefined) {
  return answer(await send(`/api/${path}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  }));
}

/** The address of a file of an entry. */
export function fileOf(id, name) {
  return `/api/file${queryOf({ id, name })}`;
}

/**
 * Listen to a stream of events. listeners: functions by kind of event; onState(open, closed): whether the
 * stream is open, and whether it has ended for good. Gives a function that ends it.
 *
 * A page that is hidden does not listen: browsers allow about six connections to a server, and each open tab would
 * hold two of them. Every stream begins by telling everything, so that nothing is missed.
 */
export function listen(path, query, listeners, onState = () => {}) {
  let source = null;
  const open = () => {
    source = new EventSource(`/api/${path}${queryOf(query)}`);
    for (const [kind, listener] of Object.entries(listeners)) {
      source.addEventListener(kind, (event) => listener(JSON.parse(event.data)));
    }
    source.addEventListener("open", () => onState(true));
    source.addEventListener("error", ({ target }) => onState(false, target.readyState === EventSource.CLOSED));
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const follow = () => {
    if (document.hidden) close();
    else if (source === null) open();
  };
  document.addEventListener("visibilitychange", follow);
  follow();
  return () => {
    document.removeEventListener("visibilitychange", follow);
    close();
  };
}

function queryOf(query) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) words.append(name, one);
  }
  const text = words.toString();
  return text ? `?${text}` : "";
}

async function send(path, options = {}) {
  try {
    return await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The dashboard does not answer; is the command still running?");
  }
}

async function answer(response) {
  const body = await response.json().catch(() => null);
  if (response.ok) return body;
  throw new Error(sentence(body?.error ?? `The dashboard answered with status ${response.status}.`));
}

/** With a capital and a full stop. */
export function sentence(text) {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}
