/* Requests to the server. Error messages are those of the server. */

/** The JSON response of a GET; `query` maps names to values or lists of values. */
export async function get(path, query = {}) {
  return answer(await send(`/api/${path}${queryOf(query)}`));
}

/** The JSON response of a POST with a JSON body. */
export async function post(path, body, signal = undefined) {
  return answer(await send(`/api/${path}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  }));
}

/** The URL of a file of an entry. */
export function fileOf(id, name) {
  return `/api/file${queryOf({ id, name })}`;
}

/**
 * Subscribe to server-sent events. listeners: callbacks by event type; onState(open, closed): whether the
 * stream is open, and whether it is closed for good. Returns a function that closes it.
 *
 * Hidden pages disconnect: browsers allow about six connections per server, and each open tab would hold two of
 * them. Every stream starts with the full state, so that nothing is missed.
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
