from collections import deque
class Members:
    def __init__(self, partitions, order, member_timeout_ms, move_wait_ms):
        self._n=partitions; self._m={}; self.history=deque(); self.moving={}
        self._all=tuple(range(partitions))
    def join(self,name,now_ms):
        new=name not in self._m; self._m[name]=now_ms; return new
    def leave(self,name,now_ms): self._m.pop(name,None)
    def heartbeat(self,name,now_ms): self._m[name]=now_ms
    def expire(self,now_ms): return []
    def next_deadline(self): return None
    def assigned(self,name): return self._all
    def grow(self,n): self._n=n; self._all=tuple(range(n))
    def tick(self,now_ms,in_flight): return []
    def names(self): return list(self._m)
