// The page is its own application server: it subscribes with the VAPID key of the server, encrypts a message (RFC 8291),
// and posts it to the endpoint that the browser got, with the token that the server has signed.

const SCOPE = "/web/";
const STATE_MS = 5000;

const byId = (id) => document.getElementById(id);
const ascii = (text) => new TextEncoder().encode(text);

function joined(...parts) {
  const bytes = parts.flatMap((part) => [...new Uint8Array(part)]);
  return new Uint8Array(bytes);
}

async function hkdf(secret, salt, info, bytes) {
  const key = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  return crypto.subtle.deriveBits({ name: "HKDF", hash: "SHA-256", salt, info }, key, bytes * 8);
}

/** The body of a push in aes128gcm. */
async function encrypted(subscription, text) {
  const curve = { name: "ECDH", namedCurve: "P-256" };
  const theirs = subscription.getKey("p256dh");
  const pair = await crypto.subtle.generateKey(curve, true, ["deriveBits"]);
  const ours = await crypto.subtle.exportKey("raw", pair.publicKey);
  const peer = await crypto.subtle.importKey("raw", theirs, curve, false, []);
  const shared = await crypto.subtle.deriveBits({ name: "ECDH", public: peer }, pair.privateKey, 256);
  const info = joined(ascii("WebPush: info\0"), theirs, ours);
  const secret = await hkdf(shared, subscription.getKey("auth"), info, 32);
  const salt = crypto.getRandomValues(new Uint8Array(16));
  const key = await hkdf(secret, salt, ascii("Content-Encoding: aes128gcm\0"), 16);
  const iv = await hkdf(secret, salt, ascii("Content-Encoding: nonce\0"), 12);
  const aes = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
  const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv }, aes, joined(ascii(text), [2]));
  return joined(salt, [0, 0, 16, 0], [ours.byteLength], ours, sealed);
}

/** The hops of a trial, each with its own limit in milliseconds, within that of the whole trial. */
const HOPS = {
  allow: ["This browser allows notifications", 6000],
  worker: ["The service worker of this page runs", 3000],
  subscribe: ["Subscribed at this server", 4000],
  accept: ["Accepted by the server", 4000],
  arrive: ["Arrived at this browser", 4000],
  show: ["Shown", 2000],
};
const TRIAL_MS = 9000;
const UNSUBSCRIBE_MS = 900;

/** What it means that a hop has not ended in time. */
const LATE = {
  allow: "the browser asks whether this page may show notifications: answer it, and try again",
  worker: "the browser has not started the service worker of this page",
  subscribe: "the browser has not reached its push server: is its address right, and is the server up?",
  accept: "the server has not answered the push",
  arrive: "the server has the message, and this browser has not received it: is it still connected?",
  show: "the browser has received the message and not shown it",
};

/** Ends with the promise, or fails after a time. */
function within(ms, promise, why) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(why)), Math.max(ms, 0)); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A trial whose hops are shown: all of them from the beginning, each with its state. */
class Trial {
  constructor() {
    this.ends = performance.now() + TRIAL_MS;
    this.states = {};
    byId("hops").replaceChildren(...Object.entries(HOPS).map(([name, [text]]) => {
      const state = this.states[name] = document.createElement("span");
      const item = document.createElement("li");
      item.append(text, " ", state);
      this.show(name, "waits", "");
      return item;
    }));
  }

  show(name, kind, text) {
    this.states[name].className = `hop ${kind}`;
    this.states[name].textContent = text || { waits: "not yet", runs: "…", failed: "failed" }[kind];
  }

  /** Waits for a hop, for its own time and that of the trial. */
  async hop(name, work) {
    const began = performance.now();
    this.show(name, "runs", "");
    try {
      const done = await within(Math.min(HOPS[name][1], this.ends - began), work, LATE[name]);
      this.show(name, done?.note ? "waits" : "done", done?.note ?? `${Math.round(performance.now() - began)} ms`);
      return done;
    } catch (error) {
      this.show(name, "failed", "");
      throw error;
    }
  }
}

/** When the service worker has received the message, and when it has shown it. */
function arrival(text) {
  const hops = { received: Promise.withResolvers(), shown: Promise.withResolvers() };
  const listen = ({ data }) => {
    if (data.text !== text) return;
    if (data.kind === "received") return hops.received.resolve();
    hops.shown.resolve(data.kind === "hidden" ? { note: "not shown: this browser has no notifications" } : undefined);
    navigator.serviceWorker.removeEventListener("message", listen);
  };
  navigator.serviceWorker.addEventListener("message", listen);
  navigator.serviceWorker.startMessages();
  return [hops.received.promise, hops.shown.promise];
}

async function allowed() {
  if (!window.isSecureContext) {
    throw new Error("browsers allow push over https only, and at localhost: open this page there");
  }
  if (!("serviceWorker" in navigator && "PushManager" in window)) {
    throw new Error("this browser has no push, or it is a private window");
  }
  if ((await Notification.requestPermission()) !== "granted") {
    throw new Error("the browser does not allow notifications for this page: allow them and try again");
  }
}

async function worker() {
  const registration = await navigator.serviceWorker.register("/web/worker.js", { scope: SCOPE });
  return active(registration);
}

/** A worker whose scope has no page is never ready by itself. */
function active(registration) {
  const worker = registration.installing || registration.waiting;
  if (registration.active || !worker) return registration;
  return new Promise((resolve) => {
    worker.addEventListener("statechange", () => worker.state === "activated" && resolve(registration));
  });
}

async function subscribed({ pushManager }, applicationServerKey, origin) {
  const before = await pushManager.getSubscription();
  if (before) await unsubscribe(before);
  const subscription = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
  const server = new URL(subscription.endpoint).origin;
  if (server !== origin) {
    await unsubscribe(subscription);
    throw new Error(`the push server of this browser is ${server}: set it to this one, as described under “Use this server”, and restart the browser`);
  }
  return subscription;
}

/** Never fails, and takes no longer than its time: the next trial removes what stays. */
function unsubscribe(subscription) {
  const ended = Promise.resolve(subscription).then((subscription) => subscription.unsubscribe());
  return within(UNSUBSCRIBE_MS, ended, "").catch(() => {});
}

async function send(subscription, text, { key, token }) {
  const headers = {
    TTL: "60",
    Urgency: "high",
    "Content-Encoding": "aes128gcm",
    Authorization: `vapid t=${token}, k=${key}`,
  };
  const body = await encrypted(subscription, text);
  const answer = await fetch(subscription.endpoint, { method: "POST", headers, body, signal: AbortSignal.timeout(TRIAL_MS) });
  if (answer.status !== 201) throw new Error(`the server answered ${answer.status}: ${(await answer.json()).message}`);
}

async function trial({ origin, key, token }) {
  const trial = new Trial();
  await trial.hop("allow", allowed());
  const registration = await trial.hop("worker", worker());
  const subscribing = subscribed(registration, key, origin);
  try {
    const subscription = await trial.hop("subscribe", subscribing);
    const text = `Hello from ${location.host}, ${new Date().toLocaleTimeString()}`;
    const [received, shown] = arrival(text);
    const hops = [trial.hop("accept", send(subscription, text, { key, token })), trial.hop("arrive", received)];
    await Promise.all([...hops, received.then(() => trial.hop("show", shown))]);
  } finally {
    // One that comes late ends too.
    await unsubscribe(subscribing);
  }
}

function result(text, kind) {
  byId("result").textContent = text;
  byId("result").className = kind;
}

byId("start").addEventListener("click", async ({ target }) => {
  result("", "");
  target.disabled = true;
  try {
    await trial(target.dataset);
    result("It works: this browser receives push messages through this server.", "good");
  } catch (error) {
    result(`It does not work yet: ${error.message}.`, "bad");
  }
  target.disabled = false;
});
byId("start").hidden = false;

/** Reads the page again, and shows the state that it has: the key and the token of a server that restarted are others. */
async function readState() {
  let [state, kind] = ["This server does not answer. This page tries again until it does.", "down"];
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(STATE_MS) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    [state, kind] = [page.getElementById("state").textContent, page.getElementById("state").className];
    Object.assign(byId("start").dataset, page.getElementById("start").dataset);
  } catch {
    // A proxy answers for a server that is gone with a page of its own.
  }
  if (byId("state").textContent !== state) byId("state").textContent = state;
  byId("state").className = kind;
  // An outage folds the steps once: a visitor may open them, or be in the middle of a trial.
  const setup = byId("setup");
  if (setup.dataset.state !== kind) setup.open = kind === "up" || byId("start").disabled;
  setup.dataset.state = kind;
}

setInterval(() => document.hidden || readState(), STATE_MS);
document.addEventListener("visibilitychange", () => document.hidden || readState());

for (const button of document.querySelectorAll("[data-copy]")) {
  const value = byId(button.dataset.copy).textContent;
  const show = (word) => {
    button.textContent = word;
    button.setAttribute("aria-label", `${word} ${value}`);
  };
  button.hidden = !navigator.clipboard;
  show("Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(value);
    show("Copied");
    setTimeout(show, 2000, "Copy");
  });
}
