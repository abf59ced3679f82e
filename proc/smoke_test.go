package proc
import ("testing";"context";"time";"bufio";"fmt")
func TestSmoke(t *testing.T){
 for _,m:=range []CgroupMode{CgroupAuto,CgroupOff}{
 b:=time.Now()
 tr,err:=Start(context.Background(),Config{Path:"sh",Args:[]string{"-c","sleep 100 & setsid sleep 100 & (setsid sleep 1000 & ) ; echo hi; cat"},Label:"run_x",Cgroup:m})
 if err!=nil{t.Fatal(err)}
 t.Log("start",time.Since(b),tr.PID(),tr.Cgroup())
 l,_:=bufio.NewReader(tr.Stdout()).ReadString('\n')
 t.Log(l)
 ps,err:=tr.List()
 for _,p:=range ps{t.Logf("%+v",p)}
 t.Log(err,InTree(tr.PID()),tr.CPU())
 b=time.Now()
 r,err:=tr.Kill(context.Background(),Selection{})
 t.Log(time.Since(b),fmt.Sprintf("%+v",r),err)
 b=time.Now()
 r,err=tr.Close(context.Background())
 t.Log(time.Since(b),r,err,tr.Exit())
 select{case <-tr.Gone():default:t.Fatal("not gone")}
 tr.Stdout().Close();tr.Stderr().Close()
 }
 _,err:=Start(context.Background(),Config{Path:"nonono"})
 t.Log(err)
 _,err=Start(context.Background(),Config{Path:"/etc/passwd"})
 t.Log(err)
}
