// The server's calls. The token is sent with each and kept for this tab alone.
const KEY = "penstock-token";

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

export class Refused extends Error {
  constructor(status, said) {
    super([said?.what ?? `The server answered ${status}.`, said?.why, said?.do].filter(Boolean).join("\n"));
    this.status = status;
    this.said = said;
  }
}

// Whole numbers that JavaScript would round stay as they were written, where the browser tells that.
const exact = (_, value, context) => (Number.isInteger(value) && !Number.isSafeInteger(value) ? (context?.source ?? value) : value);

export async function call(method, path, body = undefined, patience = 30000) {
  const headers = { Authorization: `Bearer ${token.get() ?? ""}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "omit",
    signal: AbortSignal.timeout(patience),
  });
  const said = answer.status === 204 ? null : await answer.text().then((text) => JSON.parse(text, exact)).catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, said?.error ?? null);
  return said;
}

const at = (name) => `/queries/${encodeURIComponent(name)}`;

export const queries = () => call("GET", "/queries", undefined, 10000);
export const progress = () => call("GET", "/progress", undefined, 10000);
export const catalogue = () => call("GET", "/catalogue");
export const register = (name, sql) => call("POST", "/queries", { name, sql });
export const explain = (sql) => call("POST", "/explain", { sql });
export const remove = (name) => call("DELETE", at(name));
export const pause = (name) => call("POST", `${at(name)}/pause`, {});
export const resume = (name) => call("POST", `${at(name)}/resume`, {});
export const results = (name) => call("GET", `${at(name)}/results?limit=100`);
export const view = (name) => call("GET", `/views/${encodeURIComponent(name)}`);
