// Tells the site what it hears, one report after the other, so that they arrive in order. There
// need not be a page open for that.

let told = Promise.resolve();

function tell(event, report) {
  const body = JSON.stringify(report);
  told = told.then(() => fetch("reports", { method: "POST", body }));
  event.waitUntil(told);
}

self.addEventListener("push", event => {
  tell(event, { message: event.data && event.data.text() });
});

// Firefox fires this when it lost its subscriptions, for example because the server gave it
// another uaid.
self.addEventListener("pushsubscriptionchange", event => {
  tell(event, { lost: true });
});
