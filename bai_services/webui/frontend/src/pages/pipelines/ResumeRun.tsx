import { useState } from 'react';
import { App, Button, Modal } from 'antd';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { useResumeRun, type PipelineRun } from '../../data/pipelines/pipelines';
import { AcceptFiles } from './AcceptFiles';
import { needsAcceptance } from './acceptance';

/** Button that resumes a run; it asks first if others can change the files of the pipeline. */
export function ResumeRun({ run }: { run: PipelineRun }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const resume = useResumeRun(run.id);
  const [isAsked, setAsked] = useState(false);
  const [accepts, setAccepts] = useState(false);
  const onError = (error: Error) =>
    needsAcceptance(error) ? setAsked(true) : void message.error(error.message);
  return (
    <>
      <Button
        type="primary"
        loading={resume.isPending}
        onClick={() => resume.mutate({ accepts_files: false }, { onError })}
      >
        {t('pipeline-runs.resume')}
      </Button>
      <Modal
        open={isAsked}
        title={t('pipeline-runs.resume')}
        okText={t('pipeline-runs.resume')}
        confirmLoading={resume.isPending}
        okButtonProps={{ disabled: !accepts }}
        onCancel={() => setAsked(false)}
        onOk={() => resume.mutate({ accepts_files: true }, { onSuccess: () => setAsked(false) })}
      >
        <AcceptFiles isAccepted={accepts} onChange={setAccepts} />
        {resume.error && !needsAcceptance(resume.error) && <ErrorNotice error={resume.error} />}
      </Modal>
    </>
  );
}
