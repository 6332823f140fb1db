// What the test calls in the page.

async function subscribe(applicationServerKey) {
  await navigator.serviceWorker.register("worker.js");
  const { pushManager } = await navigator.serviceWorker.ready;
  const subscription = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
  return subscription.toJSON();
}

async function subscription() {
  const { pushManager } = await navigator.serviceWorker.ready;
  const subscription = await pushManager.getSubscription();
  return subscription && subscription.toJSON();
}

async function unsubscribe() {
  const { pushManager } = await navigator.serviceWorker.ready;
  const subscription = await pushManager.getSubscription();
  return subscription.unsubscribe();
}
