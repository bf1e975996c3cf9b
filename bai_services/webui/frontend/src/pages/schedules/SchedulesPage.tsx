import { EntityPage } from '../../components/entities/EntityPage';
import { Runs } from './Runs';
import { SCHEDULES } from './schedules';

/** Schedules: set times at which sessions start and stop. */
export function SchedulesPage() {
  return (
    <EntityPage
      path="/schedules"
      title="pages.schedules"
      entities={[SCHEDULES]}
      details={(_, item) => <Runs key={String(item['id'])} schedule={String(item['id'])} />}
    />
  );
}
