//! Names of VMs: each is of one worker for its whole life.

use rekindle_core::ids::JobId;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::InstanceDoc;

use super::{hello_of, say, train, worker};
use crate::tests::Served;

const NAME: &str = "t1v-n-1-w-0";

async fn named(served: &Served) -> Option<InstanceDoc> {
    let known = served.rig.fakes.store().read::<InstanceDoc>(&Kind::Instance(NAME.into())).await.unwrap();
    known.map(|at| at.value)
}

async fn name(served: &Served, doc: &InstanceDoc) {
    served.rig.fakes.store().write(&Kind::Instance(NAME.into()), doc, Precondition::None).await.unwrap();
}

#[tokio::test]
async fn a_hello_takes_no_name_from_another_worker() {
    let served = Served::with_job().await;
    let own = InstanceDoc { name: NAME.into(), job: train(), generation: 1, key: hello_of(&served, 0).key };
    for other in [
        InstanceDoc { job: JobId::parse("other").unwrap(), ..own.clone() },
        InstanceDoc { generation: 2, ..own.clone() },
        InstanceDoc { key: hello_of(&served, 1).key, ..own.clone() },
    ] {
        name(&served, &other).await;
        let before = served.rig.fakes.docs.dump();
        let answer = say(&served, &hello_of(&served, 0)).await;
        assert_eq!(answer.status, 409, "{other:?}: {}", answer.text());
        assert!(answer.text().contains("this VM is another worker"), "{}", answer.text());
        assert_eq!(served.rig.fakes.docs.dump(), before, "events of the VM go where they went");
    }
    // What is left of a hello of its own does not stand in its way.
    name(&served, &own).await;
    worker(&served, 0).await;
    assert_eq!(named(&served).await, Some(own));
}

#[tokio::test]
async fn a_vm_is_one_worker_of_a_generation() {
    let served = Served::with_job().await;
    worker(&served, 0).await;
    let first = named(&served).await;
    let mut second = hello_of(&served, 1);
    second.instance = NAME.into();
    assert_eq!(say(&served, &second).await.status, 409);
    assert_eq!(named(&served).await, first);
    assert_eq!(say(&served, &hello_of(&served, 0)).await.status, 200, "and stays that one");
}
