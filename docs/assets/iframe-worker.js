// A browser starts no worker for a page that is a file. This one runs the worker's script in a
// hidden frame instead, so that the search works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.scope.importScripts = () => {};
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, location).href;
      this.ready = new Promise((resolve) => { script.onload = resolve; });
      frame.contentDocument.body.appendChild(script);
    }
    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.scope.frameElement.remove();
    }
  };
}
