# ruff: noqa: F821
FAILS_AS = {
    "does_not_copy_back": ("OWN_GRADIENT", "copied back"),
    "one_bucket_for_all": ("BUCKET_TOO_LARGE", "2**20"),
    "a_bucket_for_each": ("TOO_MANY_BUCKETS", "Fill a bucket"),
    "counts_elements": ("BUCKET_TOO_LARGE", "element_size()"),
    "counts_four_bytes_for_each": ("BUCKET_TOO_LARGE", "element_size()"),
    "a_million_bytes_to_the_mib": ("BUCKET_ORDER or TOO_MANY_BUCKETS", "bucket"),
    "leaves_room_for_a_byte": ("BUCKET_ORDER", "last byte"),
    "closes_when_full": ("BUCKET_TOO_LARGE", "still fits"),
    "fills_forwards": ("BUCKET_ORDER", "from the last parameter"),
    "mixes_dtypes": ("CAST", "a bucket for each dtype"),
    "starts_at_the_end": ("LATE", "its last one"),
    "blocks": ("NO_OVERLAP", "async_op=True"),
    "keeps_the_last_bucket": ("OWN_GRADIENT", "still has its own gradient"),
    "starts_what_is_complete": ("WRONG_GRADIENT or OWN_GRADIENT", "Only unused parameters"),
    "forgets_unused": ("OWN_GRADIENT or NO_GRADIENT or OUT_OF_STEP", "Only unused parameters"),
    "sums": ("SUMMED", "ReduceOp.AVG"),
    "forgets_to_wait": ("NO_WAIT", "Keep every handle"),
    "keeps_the_flat_tensors": ("MEMORY or MEMORY_GROWS", "handle"),
    "clears_buckets_that_gradients_are_in": ("WRONG_GRADIENT", "a bucket that is cleared"),
    "sends_padding": ("SENT_TWICE", "padding"),
    "ignores_no_sync": ("SENT_IN_NO_SYNC", "check whether it is on"),
    "does_not_broadcast": ("PARAMETERS_DIFFER", "drew different weights"),
    "leaves_a_bucket_open_behind_a_large_gradient": ("BUCKET_ORDER", "Fill buckets"),
    "closes_at_another_dtype": ("TOO_MANY_BUCKETS", "Fill a bucket"),
}


class does_not_copy_back(RightBucketed):
    def wait(self):
        Right.wait(self)


class one_bucket_for_all(RightBucketed):
    def fits(self, bucket, parameter):
        return True


class a_bucket_for_each(RightBucketed):
    def fits(self, bucket, parameter):
        return False


class counts_elements(RightBucketed):
    def fits(self, bucket, parameter):
        return sum(p.numel() for p in [*bucket, parameter]) <= self.limit


class counts_four_bytes_for_each(RightBucketed):
    def fits(self, bucket, parameter):
        return sum(4 * p.numel() for p in [*bucket, parameter]) <= self.limit


class a_million_bytes_to_the_mib(RightBucketed):
    def fits(self, bucket, parameter):
        return sum(p.nbytes for p in [*bucket, parameter]) <= self.limit / 2**20 * 1e6


class leaves_room_for_a_byte(RightBucketed):
    def fits(self, bucket, parameter):
        return sum(p.nbytes for p in [*bucket, parameter]) < self.limit


class closes_when_full(RightBucketed):
    def fits(self, bucket, parameter):
        return sum(p.nbytes for p in bucket) < self.limit


class fills_forwards(RightBucketed):
    def fill(self):
        self.order.reverse()
        return super().fill()


class mixes_dtypes(RightBucketed):
    def key(self, parameter):
        return None


class starts_at_the_end(RightBucketed):
    def on_ready(self, parameter):
        pass


class blocks(RightBucketed):
    def average(self, tensor):
        dist.all_reduce(tensor, dist.ReduceOp.AVG, self.group)


class keeps_the_last_bucket(RightBucketed):
    def send_bucket(self, bucket):
        if bucket is not self.buckets[-1]:
            super().send_bucket(bucket)


class starts_what_is_complete(RightBucketed):
    def on_ready(self, parameter):
        if self.enabled:
            self.refuse_twice(parameter)
            self.ready.add(parameter)
            for bucket in self.buckets:
                if self.ready.issuperset(bucket) and id(bucket) not in self.sent:
                    self.sent.append(id(bucket))
                    self.send_bucket(bucket)

    def begin(self):
        super().begin()
        self.sent = []

    def start_in_order(self):
        for bucket in self.buckets:
            if id(bucket) not in self.sent:
                self.send_bucket(bucket)


class forgets_unused(RightBucketed):
    def finish(self):
        self.wait()
        self.begin()


class sums(RightBucketed):
    def average(self, tensor):
        super().average(tensor, dist.ReduceOp.SUM)


class forgets_to_wait(RightBucketed):
    def wait(self):
        self.works.clear()
        super().wait()


class keeps_the_flat_tensors(RightBucketed):
    def begin(self):
        flats = getattr(self, "flats", [])
        super().begin()
        self.kept = [*getattr(self, "kept", []), *flats]


class clears_buckets_that_gradients_are_in(RightBucketed):
    def fill(self):
        buckets = super().fill()
        self.flat = {b[0]: b[0].new_zeros(sum(p.numel() for p in b)) for b in buckets}
        return buckets

    def send_bucket(self, bucket):
        flat = self.flat[bucket[0]].zero_()
        for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            part.copy_(parameter.grad.flatten())
            parameter.grad = part.view_as(parameter)
        self.average(flat)


class sends_padding(RightBucketed):
    def send_bucket(self, bucket):
        flat = torch.cat([*[p.grad.flatten() for p in bucket], bucket[0].new_zeros(5)])
        self.flats.append((flat[:-5], bucket))
        self.average(flat)


class ignores_no_sync(RightBucketed):
    @contextmanager
    def no_sync(self):
        yield


class does_not_broadcast(RightBucketed):
    def broadcast_tensors(self):
        return []


class leaves_a_bucket_open_behind_a_large_gradient(RightBucketed):
    def key(self, parameter):
        return parameter.dtype, parameter if parameter.nbytes > self.limit else None


class closes_at_another_dtype(RightBucketed):
    def fill(self):
        buckets = []
        for parameter in self.order:
            last = buckets[-1] if buckets else []
            if not last or last[0].dtype != parameter.dtype or not self.fits(last, parameter):
                buckets.append(last := [])
            last.append(parameter)
        return buckets
