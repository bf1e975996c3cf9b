import { useState } from 'react';
import { Alert, App, Button, Flex } from 'antd';
import { useTranslation } from 'react-i18next';
import { useBulkChange, type BulkChange } from '../../data/bulk';
import { actionText, type Entity } from './entity';
import { SharedForm } from './SharedForm';

interface BulkBarProps {
  entity: Entity;
  selected: readonly string[];
  onSelect: (keys: string[]) => void;
}

/** Actions on the selected objects, and a list of the objects that could not be changed. */
export function BulkBar({ entity, selected, onSelect }: BulkBarProps) {
  const { t } = useTranslation();
  const { modal, message } = App.useApp();
  const [isEditing, setIsEditing] = useState(false);
  const { count, isPending, result, run, clear } = useBulkChange(entity.path);
  const { activation, BulkActions } = entity;

  const change = async (values: BulkChange) => {
    const { done, failed } = await run(selected, values);
    onSelect(failed.map(({ key }) => key));
    if (done.length > 0) {
      void message.success(t('entities.changed', { count: done.length }));
    }
  };
  const confirm = (action: 'activate' | 'deactivate' | 'delete', values: BulkChange) =>
    void modal.confirm({
      title: actionText(t, entity, `${action}-several`, { count: selected.length }),
      content: action !== 'activate' && t(`${entity.name}.${action}-warning`, ''),
      okText: actionText(t, entity, action),
      okButtonProps: { danger: action !== 'activate' },
      onOk: () => void change(values)
    });

  return (
    <>
      {selected.length > 0 && (
        <Flex wrap gap="small" align="center" role="group" aria-label={t('entities.selection')}>
          <span role="status">
            {isPending
              ? t('entities.progress', { count, total: selected.length })
              : t('entities.selected', { count: selected.length })}
          </span>
          {activation && (
            <>
              <Button
                size="small"
                disabled={isPending}
                onClick={() => confirm('activate', { [activation.key]: activation.on })}
              >
                {actionText(t, entity, 'activate')}
              </Button>
              <Button
                size="small"
                disabled={isPending}
                onClick={() => confirm('deactivate', { [activation.key]: activation.off })}
              >
                {actionText(t, entity, 'deactivate')}
              </Button>
            </>
          )}
          {entity.fields.some(field => field.isBulkEditable) && (
            <Button size="small" disabled={isPending} onClick={() => setIsEditing(true)}>
              {t('entities.edit')}
            </Button>
          )}
          {entity.canDelete && (
            <Button
              size="small"
              danger
              disabled={isPending}
              onClick={() => confirm('delete', 'delete')}
            >
              {t('entities.delete')}
            </Button>
          )}
          {BulkActions && <BulkActions selected={selected} onDone={onSelect} />}
        </Flex>
      )}
      {result !== undefined && result.failed.length > 0 && (
        <Alert
          type="error"
          showIcon
          style={{ margin: '8px 0' }}
          closable={{ onClose: clear, 'aria-label': t('entities.close') }}
          title={t('entities.failed', { count: result.failed.length })}
          description={result.failed.map(({ key, message: reason }) => (
            <div key={key}>
              {key}: {reason}
            </div>
          ))}
        />
      )}
      {isEditing && (
        <SharedForm
          entity={entity}
          count={selected.length}
          onClose={() => setIsEditing(false)}
          onSave={values => {
            setIsEditing(false);
            void change(values);
          }}
        />
      )}
    </>
  );
}
