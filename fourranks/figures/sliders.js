// Sliders above a figure. The notebook's output is the figure alone; while the widget's kernel lives, sliders
// stand above it, and a moved slider asks the kernel for another figure, one at a time.

const ANSWER_WITHIN = 10000; // ms after which a figure that has not come is asked for again

class View {
  constructor(model, place) {
    this.model = model;
    this.image = place.querySelector("img");
    this.settings = [...model.get("settings")];
    this.asked = 0; // when; 0 if no answer is waited for
    this.bar = document.createElement("div");
    this.bar.className = "fourranks-sliders";
    this.bar.style.cssText = "display: flex; flex-wrap: wrap; gap: 0.3em 1.6em; padding: 2px 0 6px";
    model.get("controls").forEach((control, index) => this.addSlider(control, index));
    place.prepend(this.bar);
    this.onPicture = () => Object.assign(this.image, model.get("picture"));
    this.onAnswer = () => {
      this.asked = 0;
      if (this.isStale) this.ask();
    };
    this.onPicture();
    model.on("change:picture", this.onPicture);
    model.on("msg:custom", this.onAnswer);
  }

  addSlider({ label, names }, index) {
    const row = document.createElement("label");
    row.style.cssText = "display: flex; align-items: center; gap: 0.5em";
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: names.length - 1, value: this.settings[index] });
    slider.style.width = "11em";
    slider.dataset.lmSuppressShortcuts = "true"; // its keys are its own, not Lab's
    const value = document.createElement("output");
    value.style.minWidth = "5.5em";
    const show = () => {
      value.textContent = names[slider.value];
      slider.setAttribute("aria-valuetext", names[slider.value]);
    };
    slider.addEventListener("input", () => {
      this.settings[index] = Number(slider.value);
      show();
      this.ask();
    });
    show();
    row.append(label, slider, value);
    this.bar.append(row);
  }

  ask() {
    this.isStale = this.asked > 0 && performance.now() - this.asked < ANSWER_WITHIN;
    if (this.isStale) return;
    this.asked = performance.now();
    try {
      this.model.send({ settings: this.settings });
    } catch {
      this.bar.remove(); // the kernel is gone; the figure stays
    }
  }

  end() {
    this.model.off("change:picture", this.onPicture);
    this.model.off("msg:custom", this.onAnswer);
    this.bar.remove();
  }
}

export default { initialize: ({ model }) => followPlaces(model, View, "fourranks-sliders") };
